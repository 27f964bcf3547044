export { documents, items, product } from './documents.ts';
export { rulePackage } from './rules.ts';
