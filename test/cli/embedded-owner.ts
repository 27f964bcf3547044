/** Runs the embedded server of a folder until it is killed. */
import { startEmbedded } from '../../src/engine/database/embedded/index.ts';

const [dataDir = ''] = process.argv.slice(2);
const server = await startEmbedded({ dataDir });
console.log(`url ${server.url}`);
setInterval(() => {}, 60_000);
