-- The platform's namespaces. Each has one dispatcher, or several with the same settings. Run after schema.sql, as an
-- administrator; it can be run again. The arguments are max_attempts, base_delay and max_delay.
SELECT modkit.define_namespace('chat', 5, '1 second', '300 seconds');
SELECT modkit.define_namespace('notifications', 3, '100 milliseconds', '10 seconds');
