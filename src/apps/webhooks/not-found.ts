import { TallymanError } from '../../engine/errors.ts';

export const noEndpoint = (id: string): TallymanError =>
  new TallymanError('NOT_FOUND', `there is no webhook endpoint ${id}`);
