'use server';

import { register } from '../lib/register.js';

export async function registerUser(form) {
  await register(form.get('email'));
}
