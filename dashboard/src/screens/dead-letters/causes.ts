// Causes of dead letters in words: an HTTP status, a timeout, a refused connection. Other codes are shown as they are.

/** Codes of failed connections (Node.js and its HTTP client). */
const connections: Record<string, string> = {
  ECONNREFUSED: 'connection refused',
  ECONNRESET: 'connection reset',
  ENOTFOUND: 'host not found',
  EAI_AGAIN: 'name server does not answer',
  EHOSTUNREACH: 'host unreachable',
  ETIMEDOUT: 'connection timeout',
  UND_ERR_CONNECT_TIMEOUT: 'connection timeout',
  UND_ERR_SOCKET: 'connection lost',
  CERT_HAS_EXPIRED: 'certificate expired',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'certificate not trusted',
};

type Codes = { errorCode: string | null; remoteCode: string | null };

const httpStatus = /^[1-5]\d\d$/;

/** The code by which a list of messages finds this cause: its HTTP status, else its error code. */
export function codeOf(cause: string): string | undefined {
  const [errorCode, remoteCode = ''] = cause.split(' ');
  return httpStatus.test(remoteCode) ? remoteCode : errorCode;
}

export function causeWords({ errorCode, remoteCode }: Codes): string {
  if (remoteCode !== null && httpStatus.test(remoteCode)) {
    const status = `HTTP ${remoteCode}`;
    return errorCode === null || errorCode === 'http_status'
      ? status
      : `${status}, ${plain(errorCode)}`;
  }
  if (errorCode === 'timeout') return 'timeout';
  if (errorCode === 'connection_failed' && remoteCode !== null)
    return connections[remoteCode] ?? `connection failed, ${remoteCode}`;
  if (errorCode === null) return remoteCode ?? 'no code';
  return remoteCode === null ? plain(errorCode) : `${plain(errorCode)}, ${remoteCode}`;
}

function plain(code: string): string {
  return code.replaceAll('_', ' ');
}
