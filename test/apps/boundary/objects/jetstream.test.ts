/** BND-5: the storage of objects on JetStream does what every one must. */
import { describeBlobs } from './conformance.ts';
import { jetstream } from './storage.ts';

describeBlobs('objects on JetStream', jetstream);
