// Ends this process when the bench that started it ends, for whatever reason, so nothing is left running.

process.once('disconnect', () => process.exit(1));
