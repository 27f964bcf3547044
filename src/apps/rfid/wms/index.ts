export { type HttpWarehouseOptions, httpWarehouse } from './http.ts';
export {
  type ImportCounts,
  importPlates,
  importPlatesKind,
  PlateImport,
  type PlateImportOptions,
  type PlateImportPreview,
} from './import.ts';
export type { PlatePage, WarehouseSystem } from './warehouse-system.ts';
