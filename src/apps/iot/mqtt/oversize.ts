/** A message that was left out, because it is larger than we take. */
export interface Oversized {
  readonly topic: string;
  readonly qos: number;
  /** 0 for QoS 0. */
  readonly packetId: number;
  /** Of the packet. */
  readonly bytes: number;
  /** Its topic and packet id are longer than the packet. */
  readonly isMalformed: boolean;
}

const publish = 3;
/** Topic with its length, and the packet id. */
const longestHead = 2 + 65_535 + 2;

/**
 * Takes messages beyond the limit out of what a broker sends, before they are put together in memory. MQTT 5 lets us tell the broker
 * what we take; one of 3.1.1 sends everything, and sends it again at every connect until it is acknowledged.
 *
 *   header ── a length within the limit ──▶ passing ── its end ──▶ header
 *      └──── PUBLISH beyond the limit ──▶ head (topic, packet id) ──▶ skipping ── its end: told ──▶ header
 */
export class OversizeFilter {
  readonly #limit: number;
  readonly #onOversized: (message: Oversized) => void;
  #state: 'header' | 'passing' | 'head' | 'skipping' = 'header';
  /** What has come of a header, or of the head of a message that is left out. */
  #begun: Buffer = Buffer.alloc(0);
  /** Of this packet, still to come. */
  #left = 0;
  #flags = 0;
  #oversized: Oversized | undefined;

  constructor(limit: number, onOversized: (message: Oversized) => void) {
    this.#limit = limit;
    this.#onOversized = onOversized;
  }

  /** Returns what is to be parsed of it, in order. */
  pass(chunk: Buffer): Buffer[] {
    const passed: Buffer[] = [];
    let rest = chunk;
    while (rest.length > 0) rest = this.#step(rest, passed);
    return passed;
  }

  #step(bytes: Buffer, passed: Buffer[]): Buffer {
    switch (this.#state) {
      case 'header':
        return this.#header(bytes, passed);
      case 'head':
        return this.#head(bytes);
      default: {
        const part = bytes.subarray(0, this.#left);
        if (this.#state === 'passing') passed.push(part);
        this.#left -= part.length;
        if (this.#left === 0) this.#end();
        return bytes.subarray(part.length);
      }
    }
  }

  /** A type, and a length of one to four bytes with seven bits each. */
  #header(bytes: Buffer, passed: Buffer[]): Buffer {
    const before = this.#begun.length;
    const all = Buffer.concat([this.#begun, bytes.subarray(0, 5)]);
    let length = 0;
    for (let i = 1; i < Math.min(all.length, 5); i += 1) {
      const byte = all[i] ?? 0;
      length += (byte & 127) * 128 ** (i - 1);
      if (byte < 128) {
        this.#begin(all.subarray(0, i + 1), length, passed);
        return bytes.subarray(i + 1 - before);
      }
    }
    if (all.length >= 5) {
      // A length without end: the parser says what is wrong, and the connection ends.
      this.#begun = Buffer.alloc(0);
      passed.push(all.subarray(0, before), bytes);
      return bytes.subarray(bytes.length);
    }
    this.#begun = all;
    return bytes.subarray(bytes.length);
  }

  #begin(header: Buffer, length: number, passed: Buffer[]): void {
    const first = header[0] ?? 0;
    this.#begun = Buffer.alloc(0);
    this.#left = length;
    if (header.length + length > this.#limit && first >> 4 === publish) {
      this.#flags = first;
      this.#state = 'head';
      this.#oversized = undefined;
      return;
    }
    passed.push(header);
    this.#state = length > 0 ? 'passing' : 'header';
  }

  #head(bytes: Buffer): Buffer {
    const before = this.#begun.length;
    const all = Buffer.concat([this.#begun, bytes.subarray(0, Math.min(longestHead, this.#left))]);
    const qos = (this.#flags >> 1) & 3;
    const topicEnd = all.length < 2 ? Number.POSITIVE_INFINITY : 2 + all.readUInt16BE(0);
    const end = topicEnd + (qos > 0 ? 2 : 0);
    const isMalformed = all.length >= 2 && end > this.#left;
    if (all.length < end && !isMalformed) {
      this.#begun = all;
      return bytes.subarray(all.length - before);
    }
    this.#oversized = {
      topic: isMalformed ? '' : all.toString('utf8', 2, topicEnd),
      qos,
      packetId: qos > 0 && !isMalformed ? all.readUInt16BE(topicEnd) : 0,
      bytes: this.#left,
      isMalformed,
    };
    this.#begun = Buffer.alloc(0);
    const read = isMalformed ? before : end;
    this.#left -= read;
    this.#state = 'skipping';
    if (this.#left === 0) this.#end();
    return bytes.subarray(read - before);
  }

  #end(): void {
    const oversized = this.#state === 'skipping' ? this.#oversized : undefined;
    this.#state = 'header';
    if (oversized) this.#onOversized(oversized);
  }
}
