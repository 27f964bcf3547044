/** Settings that are well-formed each, and do not fit together. */
import { isLoopbackHost } from '../../network/loopback.ts';
import type { BoundaryConfig, PeerConfig } from './config.ts';
import { ruleProblems } from './config-rules.ts';

/** Each with the name of the key. */
export function boundaryProblems(config: BoundaryConfig): readonly string[] {
  const zone = config['boundary.zone'];
  if (zone === null) return [];
  return [
    ...tlsProblems(config),
    ...peerProblems(config, zone),
    ...jetstreamProblems(config),
    ...ruleProblems(config, zone),
    ...(config['boundary.limits.acceptAt'] < config['boundary.limits.refuseAt']
      ? []
      : [
          `boundary.limits.acceptAt (${config['boundary.limits.acceptAt']}) must be below boundary.limits.refuseAt (${config['boundary.limits.refuseAt']}): a full stream would take facts again at once`,
        ]),
    ...(config['boundary.receiptKeyFile'] === null
      ? [
          'boundary.receiptKeyFile is not set: it signs receipts of what peers deliver. Make one: openssl genpkey -algorithm ed25519 -out receipt.key',
        ]
      : []),
  ];
}

function jetstreamProblems(config: BoundaryConfig): string[] {
  const asking = (['boundary.storage', 'boundary.objects.storage'] as const).find(
    (name) => config[name] === 'jetstream',
  );
  if (!asking) return [];
  const replicas = config['boundary.jetstream.replicas'];
  const monitors = config['boundary.jetstream.monitorUrls'].length;
  return [
    ...(config['boundary.jetstream.servers'].length === 0
      ? [`boundary.jetstream.servers is not set, and ${asking} is jetstream`]
      : []),
    ...(monitors < replicas
      ? [
          `boundary.jetstream.monitorUrls names ${monitors} servers, and boundary.jetstream.replicas is ${replicas}: name the monitoring port of every server, so that each can be asked whether it says sync_always`,
        ]
      : []),
    ...(replicas % 2 === 0
      ? [
          `boundary.jetstream.replicas is ${replicas}: an even number survives no more than the odd one below it`,
        ]
      : []),
  ];
}

const tlsKeys = ['boundary.tls.certFile', 'boundary.tls.keyFile', 'boundary.tls.caFile'] as const;

function tlsProblems(config: BoundaryConfig): string[] {
  const missing = tlsKeys.filter((name) => config[name] === null);
  if (missing.length === tlsKeys.length) {
    const host = config['boundary.listen.host'];
    return [
      ...(isLoopbackHost(host)
        ? []
        : [
            `boundary.listen.host is ${host}: without certificates (boundary.tls.certFile) the boundary listens on loopback only`,
          ]),
      ...(Object.values(config['boundary.peers']).every(({ mode }) => mode.includes('one-way'))
        ? []
        : [
            'boundary.peers needs certificates, unless all are one-way: set boundary.tls.certFile, boundary.tls.keyFile and boundary.tls.caFile',
          ]),
    ];
  }
  return [
    ...missing.map((name) => `${name} is not set, and belongs to the other keys under boundary.tls`),
    ...(config['boundary.trustDomain'] === null
      ? ['boundary.trustDomain is not set: certificates name it']
      : []),
  ];
}

function peerProblems(config: BoundaryConfig, zone: string): string[] {
  const others = Object.entries(config['boundary.peers']);
  const known = new Set([...others.map(([name]) => name), ...config['boundary.zones']]);
  const sendsTo = config['boundary.sendsTo'];
  return [
    ...others.flatMap(([name, peer]) => {
      const { url, mode, receiptKeys, inbox } = peer;
      const isOneWay = mode.includes('one-way');
      const key = `boundary.peers.${name}`;
      if (name === zone) return [`${key} is the zone of this node (boundary.zone)`];
      const isSentTo = sendsTo.length === 0 || sendsTo.includes(name);
      return [
        ...oneWayProblems(key, peer),
        ...(mode.length > 0 && !isOneWay && url === undefined
          ? [`${key}.url is not set, and ${key}.mode says to connect to it`]
          : []),
        ...(inbox !== undefined && receiptKeys.length === 0
          ? [`${key}.receiptKeys is empty: files in ${key}.inbox could not be checked`]
          : []),
        ...(isSentTo && !isOneWay && receiptKeys.length === 0
          ? [`${key}.receiptKeys is empty: receipts of what is sent there could not be checked`]
          : []),
      ];
    }),
    ...sendsTo
      .filter((name) => !known.has(name))
      .map(
        (name) =>
          `boundary.sendsTo names "${name}", which is neither in boundary.peers nor in boundary.zones`,
      ),
  ];
}

function oneWayProblems(key: string, { mode, url, outbox, inbox, resend }: PeerConfig): string[] {
  const isOneWay = mode.includes('one-way');
  const needed = isOneWay && outbox === undefined && inbox === undefined;
  return [
    ...(isOneWay && mode.length > 1
      ? [`${key}.mode names one-way and another way: only one of them can be`]
      : []),
    ...(isOneWay && url !== undefined ? [`${key}.url is set, and in one-way mode nobody connects`] : []),
    ...(needed
      ? [`${key}.mode is one-way: set ${key}.outbox to send, ${key}.inbox to receive, or both`]
      : []),
    ...(!isOneWay && (outbox !== undefined || inbox !== undefined || resend !== undefined)
      ? [`${key}.outbox, ${key}.inbox and ${key}.resend are for ${key}.mode one-way`]
      : []),
    ...(resend !== undefined && outbox === undefined && isOneWay
      ? [`${key}.resend is set, and there is no ${key}.outbox to write to`]
      : []),
    ...(resend !== undefined && resend.windowMs < resend.everyMs
      ? [
          `${key}.resend.windowMs must not be below ${key}.resend.everyMs: some facts would never be written again`,
        ]
      : []),
    ...(outbox !== undefined && outbox === inbox
      ? [`${key}.outbox and ${key}.inbox are the same folder: this node would take its own files`]
      : []),
  ];
}
