-- The columns stay: functions of this version use them, and those of an earlier one are not hindered by them.
DROP FUNCTION IF EXISTS forget_positions, tell_limits;
