/** The simulated gateway in a process of its own. It ends when its parent does. */
import {
  type LabelSimulatorOptions,
  startLabelSimulator,
} from '../../src/apps/labels/gateways/simulator/index.ts';

process.on('disconnect', () => process.exit(0));
const { url } = await startLabelSimulator(JSON.parse(process.argv[2] ?? '{}') as LabelSimulatorOptions);
process.send?.({ url });
