/**
 * A process that owns an embedded server, for tests to kill. Started with {module, options} as JSON; says one
 * line of JSON when the server runs or when it does not; stops in order when its standard input ends.
 */
const { module, options } = JSON.parse(process.argv[2] ?? '{}');
const { startEmbedded } = await import(module);
try {
  const server = await startEmbedded(options);
  console.log(JSON.stringify({ url: server.url, pid: server.pid, port: server.port }));
  process.stdin.resume().on('end', async () => {
    await server.stop();
    process.exit(0);
  });
} catch (error) {
  const { code, message } = error as Error & { code?: string };
  console.log(JSON.stringify({ code, message }));
  process.exit(1);
}
