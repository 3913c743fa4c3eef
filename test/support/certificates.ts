// A certificate authority and a certificate for this machine, for TLS servers in tests. Made by openssl, valid for a
// day.

import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

export type Certificates = {
  /** The certificate of the authority, as PEM text. */
  readonly ca: string;
  readonly caFile: string;
  readonly certFile: string;
  readonly keyFile: string;
};

/** The certificate for 127.0.0.1 and localhost, as files of the folder. */
export function makeCertificates(folder: string): Certificates {
  const file = (name: string): string => path.join(folder, name);
  const openssl = (command: string, name?: string): void => {
    const args = [...command.split(' '), ...(name === undefined ? [] : ['-subj', `/CN=${name}`])];
    execFileSync('openssl', args, { cwd: folder, stdio: ['ignore', 'ignore', 'pipe'] });
  };
  const newKey = '-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes';
  openssl(`req -x509 ${newKey} -keyout ca.key -out ca.pem -days 1`, 'Waybill tests');
  openssl(`req ${newKey} -keyout server.key -out server.csr`, 'localhost');
  writeFileSync(file('names'), 'subjectAltName=IP:127.0.0.1,DNS:localhost\n');
  openssl(
    'x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 1 -extfile names -out server.pem',
  );
  return {
    ca: readFileSync(file('ca.pem'), 'utf8'),
    caFile: file('ca.pem'),
    certFile: file('server.pem'),
    keyFile: file('server.key'),
  };
}
