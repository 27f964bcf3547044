/** BND-5: the storage of objects in files does what every one must. */
import { describeBlobs } from './conformance.ts';
import { files } from './storage.ts';

describeBlobs('objects in files', files);
