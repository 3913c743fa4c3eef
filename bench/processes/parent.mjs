// Ends this process with the bench that started it, however that one ended: nothing is left running.

process.once('disconnect', () => process.exit(1));
