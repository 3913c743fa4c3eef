// Runs an example of a driver in any runtime: registers a user, which enqueues a message, and prints its id.

const [, , example, email] = process.argv;
const { register, close } = await import(example);
const { id } = await register(email);
console.log(id);
await close();
