/** Explains what a broker or a socket reported, with what to do about it. */

/** Reason codes of MQTT 5; those of 3.1.1 are brought to the same numbers. */
const reasons: Readonly<Record<number, string>> = {
  128: 'the broker gives no reason',
  129: 'it holds our packet for malformed',
  130: 'it holds our packet for a breach of protocol',
  132: 'it does not speak this version of MQTT',
  133: 'it refuses the client id',
  134: 'user name or password is wrong',
  135: 'not authorized: check user, password, certificate and the access list of the broker',
  136: 'the broker is not available',
  137: 'the broker is busy',
  138: 'this client is banned',
  139: 'the broker is shutting down',
  140: 'it asks for another way to authenticate',
  141: 'it heard nothing from us within the keep-alive',
  142: 'another client has connected with our client id: give each instance its own instanceId',
  143: 'the topic filter is not valid',
  145: 'a packet id is in use already',
  147: 'the receive maximum was exceeded',
  149: 'a packet was too large',
  150: 'too many messages in a short time',
  151: 'a quota is used up',
  152: 'an operator of the broker ended the connection',
  154: 'it keeps no retained messages',
  155: 'it does not support this QoS',
  156: 'it asks us to use another server',
  157: 'the broker has moved',
  158: 'it does not support shared subscriptions',
  159: 'too many connections in a short time',
  160: 'the connection was open for as long as the broker allows',
  161: 'it does not support subscription identifiers',
  162: 'it does not support wildcards',
};

/** Return codes of a 3.1.1 CONNACK, as reason codes. */
const returnCodes: readonly number[] = [0, 0x84, 0x85, 0x88, 0x86, 0x87];

export const unsupportedVersion = 0x84;

export function fromReturnCode(code: number): number {
  return returnCodes[code] ?? 0x80;
}

export function reasonText(code: number, reasonString?: string): string {
  const words = reasons[code] ?? 'an unknown reason';
  return `${words} (0x${code.toString(16).padStart(2, '0')}${reasonString ? `, "${reasonString}"` : ''})`;
}

const socketErrors: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens there',
  ENOTFOUND: 'the name is unknown',
  EAI_AGAIN: 'the name could not be looked up',
  ETIMEDOUT: 'no answer',
  EHOSTUNREACH: 'there is no way to it',
  ENETUNREACH: 'there is no way to it',
  ECONNRESET: 'the connection was cut',
  EPIPE: 'the connection was cut',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'its certificate is signed by an authority we do not know: set tlsCa',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'its certificate is signed by an authority we do not know: set tlsCa',
  UNABLE_TO_GET_ISSUER_CERT: 'its certificate is signed by an authority we do not know: set tlsCa',
  SELF_SIGNED_CERT_IN_CHAIN: 'its certificate is signed by an authority we do not know: set tlsCa',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'its certificate is signed by itself: set tlsCa to that certificate',
  CERT_SIGNATURE_FAILURE: 'its certificate was not signed by the authority in tlsCa',
  CERT_HAS_EXPIRED: 'its certificate has expired',
  CERT_NOT_YET_VALID: 'its certificate is not valid yet: check the clocks',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another name: set tlsServerName or brokerHost',
  ERR_SSL_WRONG_VERSION_NUMBER: 'that port does not speak TLS: set tls to false, or use the TLS port',
  ERR_SSL_PACKET_LENGTH_TOO_LONG: 'that port does not speak TLS: set tls to false, or use the TLS port',
  ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED: 'it wants a client certificate: set tlsCertificate and tlsKey',
  ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE:
    'it refuses the TLS handshake; perhaps it wants a client certificate',
  ERR_SSL_TLSV1_ALERT_UNKNOWN_CA: 'it does not know the authority of our client certificate',
  ERR_SSL_SSLV3_ALERT_CERTIFICATE_UNKNOWN: 'it does not accept our client certificate',
};

export function socketText(error: Error): string {
  const code = 'code' in error && typeof error.code === 'string' ? error.code : undefined;
  // For a host with several addresses, report the last error.
  if (error instanceof AggregateError && error.errors.length > 0 && code === undefined)
    return socketText(error.errors.at(-1) as Error);
  const words = code === undefined ? undefined : socketErrors[code];
  return words === undefined ? error.message : `${words} (${code})`;
}
