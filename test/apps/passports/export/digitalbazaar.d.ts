/** The libraries have no types of their own: what the tests use of them. */
declare module '@digitalbazaar/ed25519-multikey' {
  export function from(key: object): Promise<{ readonly publicKeyMultibase: string }>;
}
declare module '@digitalbazaar/data-integrity' {
  export class DataIntegrityProof {
    constructor(options: { readonly cryptosuite: object });
  }
}
declare module '@digitalbazaar/eddsa-jcs-2022-cryptosuite' {
  export function createVerifyCryptosuite(): object;
}
declare module '@digitalbazaar/vc' {
  export function defaultDocumentLoader(url: string): Promise<object>;
  export function verifyCredential(options: object): Promise<{
    readonly verified: boolean;
    readonly error?: unknown;
  }>;
}
