import type { RulePosition } from './types.ts';

/** BPC-13, those that the compiler raises. All of them are permanent: the same input fails the same way. */
export type CompileErrorCode =
  | 'VALIDATION_ERROR'
  | 'CANONICAL_JSON_INVALID'
  | 'FACT_MISSING'
  | 'DUPLICATE_FACT'
  | 'RULE_PARSE_ERROR'
  | 'RULE_TYPE_ERROR'
  | 'RULE_CYCLE_DETECTED'
  | 'UNIT_MISMATCH'
  | 'DIVISION_BY_ZERO'
  | 'PAYLOAD_TOO_LARGE'
  | 'PROOF_TOO_LARGE'
  | 'RECEIPT_TOO_LARGE';

export interface CompileErrorDetails {
  readonly rule?: string;
  readonly position?: RulePosition;
  readonly [key: string]: unknown;
}

/** Says what happened, to which item, and what to do. Codes are stable, messages may change. */
export class CompileError extends Error {
  override readonly name = 'CompileError';
  readonly code: CompileErrorCode;
  readonly details: CompileErrorDetails;

  constructor(code: CompileErrorCode, message: string, details: CompileErrorDetails = {}) {
    super(message);
    this.code = code;
    this.details = details;
  }
}
