import type { ConfigKeys, Key } from '../config/key.ts';

/** docs/configuration.md is this, word for word; a test holds them equal. */
export function configurationReference(keys: ConfigKeys): string {
  const rows = Object.entries(keys).map(
    ([name, key]) =>
      `| \`${name}\` | ${key.env.map((env) => variable(env, key)).join('<br>')} | ${fallback(key)} | ${key.doc} |`,
  );
  return `# Configuration

<!-- Made by \`tallyman config --docs\` from src/config/keys.ts and the config.ts of each app. Change it there. -->

Each key can stand in a configuration file or in the environment. The environment wins over the file; of several
names, the first. The file is \`tallyman.config.json\` in the working directory, or what \`TALLYMAN_CONFIG\` or
\`--config\` names; a key is a path of nested objects:

\`\`\`json
{ "jobs": { "concurrency": 20, "leaseMs": 30000 } }
\`\`\`

A value that does not fit, and a key that does not exist, stop the program at its start with a message that names it.
\`tallyman config\` prints what is in effect and where it came from.

| key | environment | default | meaning |
|---|---|---|---|
${rows.join('\n')}
`;
}

const variable = (name: string, key: Key<unknown>): string =>
  `\`${name}\`${key.scale?.[name] === 1000 ? ' (in seconds)' : ''}`;

const fallback = ({ fallback: value }: Key<unknown>): string =>
  value === null ? 'not set' : `\`${typeof value === 'object' ? JSON.stringify(value) : value}\``;
