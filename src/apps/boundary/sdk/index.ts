/** The SDK of the boundary: a producer that loses nothing, a consumer that misses nothing. Needs no PostgreSQL. */
export { PermanentError } from '../../../engine/errors.ts';
export type { Logger } from '../../../engine/logger.ts';
export { BoundaryError } from '../domain/errors.ts';
export type { ObjectReference } from '../domain/object-reference.ts';
export { BoundaryCallError } from './call-error.ts';
export { Connection, type ConnectionOptions, type NodeClient, type TlsOptions } from './connection.ts';
export {
  Consumer,
  type ConsumerMode,
  type ConsumerOptions,
  type HandlerContext,
  type Parking,
  PoisonError,
  type PoisonOptions,
} from './consumer/consumer.ts';
export { ParkedFacts, type ParkedPoison, type PoisonFact } from './consumer/parked-facts.ts';
export type { Gap, ReceivedFact } from './consumer/received.ts';
export { type AppendedFact, DirectProducer, type DirectProducerOptions, type FoundFact } from './direct.ts';
export type { Attachment, ProducerFact } from './fact.ts';
export { type IdPart, type MessageIdRule, messageId, uuidV5 } from './message-id.ts';
export type { ObjectSource, PutOptions, StoredObject } from './objects.ts';
export type { ParkedFact } from './outbox/file.ts';
export type { LaneMode } from './outbox/lane.ts';
export {
  type AcceptedFact,
  type DeliveredFact,
  OutboxProducer,
  type OutboxProducerOptions,
  type OutboxState,
} from './outbox/producer.ts';
export type { RetryOptions } from './retry.ts';
