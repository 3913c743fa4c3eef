import { register } from '../../../lib/register.js';

export async function POST(request) {
  const { email } = await request.json();
  return Response.json(await register(email), { status: 201 });
}
