import { defineApp } from '../../host/app.ts';
import { addIot } from './commands.ts';
import { iotComponent } from './component.ts';
import { iotKeys } from './config.ts';
import { addPlaces } from './place-commands.ts';

export const iotApp = defineApp({
  name: 'iot',
  summary: 'devices, their places, and their raw messages',
  component: iotComponent,
  config: iotKeys,
  routes: async () => (await import('./routes.ts')).iotRoutes,
  commands: (program, frame) => {
    addIot(program, frame);
    addPlaces(program, frame);
  },
});
