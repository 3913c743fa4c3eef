-- The column stays: functions of this version write it, and those of an earlier one are not hindered by it.
DROP FUNCTION IF EXISTS forget_positions;
