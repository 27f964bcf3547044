/** The process in which one run of one workload on one system is measured. */
import { serve } from '../../lib/child.ts';
import type { Measured, Task } from './measure/bench.ts';
import { measure } from './measure/index.ts';
import { systemNamed } from './systems/index.ts';

serve<Task, Measured>(async (task, report) =>
  measure(await systemNamed(task.system, task.baseline), task, report),
);
