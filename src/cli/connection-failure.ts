// Explains in one line why the database cannot be reached, and what to do. The line never contains the password.

import { errorText } from '../core/errors.js';

const where = "the database's address (DATABASE_URL)";

type Failure = {
  code?: string;
  syscall?: string;
  hostname?: string;
  address?: string;
  port?: number;
};

/** Undefined if the error is not a connection failure. */
export function connectionFailure(error: unknown): string | undefined {
  // a host name with several addresses: each of them was tried
  const tried = (error instanceof AggregateError ? error.errors : [error]) as Failure[];
  const { code = '', syscall, hostname, address, port } = tried[0] ?? {};
  const text = errorText(error);
  switch (code) {
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `the host ${hostname} is not known here: correct the host in ${where}`;
    case 'ECONNREFUSED':
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
    case 'ETIMEDOUT':
      return `no database answers at ${address}:${port} (${code}): is PostgreSQL running there? If not, correct host and port in ${where}`;
    case 'ENOENT':
      return syscall === 'connect'
        ? `no database answers at the socket ${address}: is PostgreSQL running? If elsewhere, correct ${where}`
        : undefined;
    case '28P01':
      return `${text}: correct user and password in ${where}`;
    case '28000':
      return `${text}: correct the user in ${where}, or let the server accept it (pg_hba.conf)`;
    case '3D000':
      return `${text}: create it, or correct the name in ${where}`;
    case '53300':
      return `${text}: end some connections, or raise max_connections of the server`;
    case '57P03':
      return `${text}: try again in a moment`;
  }
  if (/password must be a string/.test(text))
    return `the database asks for a password: put one into ${where}`;
  if (code === 'ECONNRESET' || /terminated unexpectedly/.test(text))
    return `the connection was closed (${text}): try again, or find out whether it is PostgreSQL that listens at ${where}`;
  if (/timeout expired|connection timeout/.test(text))
    return `the database did not answer in time: correct host and port in ${where}, or find out what lies between`;
  if (/does not support SSL/.test(text))
    return `the database takes no encrypted connections: leave sslmode out of ${where}`;
  if (/certificate/i.test(text))
    return `the certificate of the database is not trusted (${text}): name its authority with sslrootcert=FILE in ${where}`;
  return undefined;
}
