import { registerUser } from './actions.js';

export default function Page() {
  return (
    <form action={registerUser}>
      <input name="email" type="email" required />
      <button>Register</button>
    </form>
  );
}
