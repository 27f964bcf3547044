export { type Assignment, assign, unassign } from './assignments.ts';
export { type BuiltInTemplate, listBuiltIns, requireBuiltIn } from './built-ins.ts';
export type { Change } from './changes/change.ts';
export { pushQueue } from './changes/tasks.ts';
export { labelsComponent } from './component.ts';
export { type ImportOptions, type ImportReport, importProducts, productsIn } from './import/import.ts';
export {
  type LabelType,
  type LabelTypeSettings,
  listLabelTypes,
  palettes,
  putLabelType,
  removeLabelType,
} from './label-types.ts';
export {
  type Label,
  type LabelPage,
  listLabels,
  type NewLabel,
  type PageState,
  pageStates,
  putLabels,
  removeLabels,
  requireLabel,
  resync,
} from './labels.ts';
export { laneOf, normaliseMac } from './mac.ts';
export { exposeLabels } from './metrics.ts';
export { previewBuiltIn, previewLabel, previewTemplate } from './preview.ts';
export {
  listProducts,
  type Product,
  type ProductChange,
  type ProductsChanged,
  putProducts,
  removeProducts,
  requireProduct,
} from './products.ts';
export { previewSheets } from './render/index.ts';
export { listStores, putStore, removeStore, requireStore, type Store, type StoreSettings } from './stores.ts';
export {
  type LabelTemplate,
  listTemplates,
  putTemplate,
  removeTemplate,
  requireSvg,
  requireTemplate,
} from './templates.ts';
export { Gateways } from './worker/gateways.ts';
export { driftSchedule, labelKinds } from './worker/kinds.ts';
export type { LabelObserver } from './worker/observer.ts';
export { StatusLoop } from './worker/status-loop.ts';
