import type { DocumentInput, DocumentKind, Item, Product } from '../types.ts';

/*
 * A battery to try things with: a 100 kWh pack of NMC811 cells, with the figures of a public pilot of the Global Battery
 * Alliance. Rows whose note says "invented" are plausible and nothing more; all names, links and numbers of parts are
 * invented, too. Each data sheet holds what readers of one access point may see.
 */

export const product: Product = {
  id: 'pack-100-nmc811',
  name: 'Sample Pack 100 (NMC811)',
  category: 'ev',
  gtin: '09506000134352',
  manufacturer: 'Sample Batteries',
  manufacturerId: 'https://batteries.example/id/sample-batteries',
};

export const items: readonly Item[] = ['SP100-000001', 'SP100-000002', 'SP100-000003'].map((serial) => ({
  serial,
  manufacturedOn: '2027-01',
  manufacturedAt: 'Sample City, Germany',
  status: 'original',
}));

const billOfMaterials = `component,material,cas,mass,unit,critical,hazardous,note
cathode,NMC811,179802-95-0,181,kg,lithium;cobalt;nickel;manganese,no,invented
cathode,aluminium foil,7429-90-5,18,kg,aluminium,no,invented
cathode,PVDF,24937-79-9,4,kg,,no,invented
cathode,carbon black,1333-86-4,4,kg,,no,invented
anode,graphite,7782-42-5,105,kg,graphite,no,invented
anode,copper foil,7440-50-8,35,kg,copper,no,invented
anode,CMC/SBR binder,,3,kg,,no,invented
electrolyte,ethylene carbonate,96-49-1,22,kg,,no,invented
electrolyte,ethyl methyl carbonate,623-53-0,30.5,kg,,no,invented
electrolyte,LiPF6,21324-40-3,7.5,kg,lithium,yes,invented
separator,PE separator,9002-88-4,9,kg,,no,invented
housing,cell housing aluminium,7429-90-5,35,kg,aluminium,no,invented
housing,pack aluminium,7429-90-5,82,kg,aluminium,no,invented
housing,steel,,16,kg,,no,invented
other,copper busbars,7440-50-8,9,kg,copper,no,invented
other,electronics,,6,kg,,no,invented
other,polymers,,9,kg,,no,invented
other,glycol,107-21-1,4,kg,,no,invented
`;

const carbonFootprint = `stage,amount,unit,note
raw_materials,5630,kgCO2e,invented
production,1400,kgCO2e,invented
distribution,70,kgCO2e,invented
end_of_life,200,kgCO2e,invented
`;

const dueDiligence = `topic,material,statement,reference,note
report,,Report on due diligence in the supply chain,https://batteries.example/due-diligence/2026.pdf,invented
risk,cobalt,Supplier audits on site in all three tiers,https://batteries.example/due-diligence/cobalt,invented
risk,lithium,Water use assessed with local communities,https://batteries.example/due-diligence/lithium,invented
risk,nickel,Smelters take part in a recognised scheme,https://batteries.example/due-diligence/nickel,invented
risk,graphite,Traced to the processing plant,https://batteries.example/due-diligence/graphite,invented
`;

const publicSheet = `attribute,value,unit,note
warrantyPeriod,96,month,invented
collectionSymbol,https://batteries.example/symbols/separate-collection.svg,,invented
metalSymbols,none: no cadmium and no lead above the thresholds,,invented
extinguishingAgent,Water in large amounts; class D for exposed cells,,invented
labelMeaning,https://batteries.example/symbols/meaning,,invented
conformityDeclaration,https://batteries.example/conformity/pack-100.pdf,,invented
footprintStudy,https://batteries.example/footprint/pack-100.pdf,,invented
chemistry,NMC811/graphite,,
substanceImpact,https://batteries.example/substances/pack-100,,invented
recycledNickelPre,4,%,invented
recycledCobaltPre,8,%,invented
recycledLithiumPre,1,%,invented
recycledLeadPre,0,%,invented
recycledNickelPost,2,%,invented
recycledCobaltPost,5.6,%,invented
recycledLithiumPost,0,%,invented
recycledLeadPost,0,%,invented
renewableContent,0,%,invented
wastePrevention,https://batteries.example/users/waste-prevention,,invented
separateCollection,https://batteries.example/users/collection,,invented
endOfLifeTreatment,https://batteries.example/users/end-of-life,,invented
ratedCapacity,151,Ah,
certifiedEnergy,95,kWh,invented
minimumVoltage,450,V,
nominalVoltage,662,V,
maximumVoltage,742,V,
originalPower,300000,W,invented
maximumPower,350000,W,invented
initialEfficiency,96,%,invented
halfLifeEfficiency,89,%,invented
initialResistance,0.062,Ohm,invented
lifetimeCycles,1500,cycle,invented
cycleTest,IEC 62660-1:2018,,invented
cycleTestRate,0.5,A/Ah,invented
exhaustionThreshold,80,%,invented
idleTemperatureMin,-30,°C,
idleTemperatureMax,60,°C,
`;

const serviceSheet = `attribute,value,unit,note
dismantlingManuals,https://batteries.example/service/pack-100/dismantling.pdf,,invented
partNumbers,https://batteries.example/service/pack-100/parts,,invented
spareParts,Sample Batteries service; https://batteries.example/service/spare-parts,,invented
safetyMeasures,https://batteries.example/service/pack-100/safety.pdf,,invented
`;

const testReports = `attribute,value,unit,note
testReports,https://batteries.example/reports/pack-100-2026.pdf,,invented
`;

const individualSheet = `attribute,value,unit,note
annualCycles,60,cycle/a,invented
lifetimeYears,8,a,invented
capacityFade,0,%,invented
powerFade,0,%,invented
resistanceIncrease,0,%,invented
stateOfCertifiedEnergy,100,%,invented
fullCycles,0,cycle,invented
accidents,none,,invented
`;

const document = (
  name: string,
  kind: DocumentKind,
  text: string,
): { readonly name: string; readonly input: DocumentInput } => ({
  name,
  input: { kind, format: 'csv', bytes: new TextEncoder().encode(text) },
});

export const documents = [
  document('bill-of-materials.csv', 'bill_of_materials', billOfMaterials),
  document('carbon-footprint.csv', 'carbon_footprint', carbonFootprint),
  document('due-diligence.csv', 'due_diligence', dueDiligence),
  document('data-sheet.csv', 'data_sheet', publicSheet),
  document('service.csv', 'data_sheet', serviceSheet),
  document('test-reports.csv', 'data_sheet', testReports),
  document('individual.csv', 'data_sheet', individualSheet),
];
