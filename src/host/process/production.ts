/** Variables that a container platform sets in every container, and that no developer's machine has. */
const platforms: readonly (readonly [variable: string, platform: string])[] = [
  ['KUBERNETES_SERVICE_HOST', 'Kubernetes'],
  ['CONTAINER_APP_NAME', 'Azure Container Apps'],
  ['CONTAINER_APP_REVISION', 'Azure Container Apps'],
  ['ECS_CONTAINER_METADATA_URI_V4', 'Amazon ECS'],
  ['ECS_CONTAINER_METADATA_URI', 'Amazon ECS'],
];

/** What tells that this is production, for a message; undefined on a developer's machine. */
export function productionSign(env: Readonly<Record<string, string | undefined>>): string | undefined {
  const { NODE_ENV: mode = '' } = env;
  if (mode.trim().toLowerCase() === 'production') return `NODE_ENV is ${mode}`;
  const found = platforms.find(([variable]) => (env[variable] ?? '') !== '');
  return found && `${found[0]} is set, as on ${found[1]}`;
}
