import type { AttributeGroup } from '../compile/attributes.ts';
import type { AccessPoint, BatteryStatus, Category, Reader } from '../compile/index.ts';
import type { SignatureStatus } from './disclosure.ts';

/** Everything that page and PDF say, in each language. A language without one of these texts does not compile. */
export interface Texts {
  readonly title: string;
  readonly groups: Readonly<Record<AttributeGroup | 'other', string>>;
  readonly categories: Readonly<Record<Category, string>>;
  readonly statuses: Readonly<Record<BatteryStatus, string>>;
  readonly readers: Readonly<Record<Reader, string>>;
  readonly points: Readonly<Record<AccessPoint, { readonly name: string; readonly who: string }>>;
  readonly serial: string;
  readonly model: string;
  readonly issued: string;
  readonly readAs: string;
  readonly states: Readonly<
    Record<'SIGNED' | 'ACTIVE' | 'SUPERSEDED' | 'REVOKED' | 'CEASED', { name: string; sentence: string }>
  >;
  readonly newest: string;
  readonly since: (date: string) => string;
  readonly how: string;
  readonly whence: string;
  readonly rule: string;
  readonly law: string;
  readonly noDerivation: string;
  readonly asAbove: string;
  readonly absent: string;
  readonly fromItem: string;
  readonly row: (document: string, row: number, column: string) => string;
  readonly hiddenDocument: string;
  readonly dividend: (numerator: string, denominator: string) => string;
  readonly records: (count: number) => string;
  readonly notYet: (date: string, article: string) => string;
  readonly undetermined: string;
  readonly outOfScope: string;
  readonly reasons: Readonly<Record<string, string>>;
  readonly withheld: string;
  readonly withheldShort: string;
  readonly annex: string;
  readonly hint: string;
  readonly withheldIntro: string;
  readonly whoMay: string;
  readonly individual: string;
  readonly individualNone: string;
  readonly individualWithheld: string;
  readonly individualSigned: string;
  readonly predecessors: string;
  readonly verification: string;
  readonly signature: Readonly<Record<SignatureStatus, string>>;
  /** The same in two words. */
  readonly signed: Readonly<Record<SignatureStatus, string>>;
  readonly technical: string;
  readonly notQualified: string;
  readonly labelCode: string;
  readonly labelCodeFor: string;
  readonly documentCode: string;
  readonly documentCodeFor: string;
  readonly verifyOffline: string;
  readonly hashes: Readonly<Record<'receipt' | 'payload' | 'proof' | 'key' | 'version' | 'rules', string>>;
  readonly language: string;
  /** Pages without a passport. */
  readonly notices: Readonly<Record<'notFound', { readonly name: string; readonly sentence: string }>>;
  readonly yes: string;
  readonly no: string;
  readonly units: Readonly<Record<string, string>>;
  readonly material: Readonly<Record<'component' | 'name' | 'cas' | 'mass', string>>;
}

const en: Texts = {
  title: 'Battery passport',
  groups: {
    identification: 'Identification',
    conformity: 'Symbols and conformity',
    footprint: 'Carbon footprint',
    diligence: 'Supply chain',
    materials: 'Materials',
    circularity: 'Circularity',
    performance: 'Performance and durability',
    other: 'More',
  },
  categories: {
    ev: 'Electric vehicle battery',
    lmt: 'Battery for light means of transport',
    industrial: 'Industrial battery',
    stationary: 'Stationary battery',
  },
  statuses: {
    original: 'original',
    repurposed: 'repurposed',
    reused: 're-used',
    remanufactured: 'remanufactured',
    waste: 'waste',
  },
  readers: {
    public: 'the public',
    legitimate_interest: 'a person with a legitimate interest',
    authority: 'an authority',
    owner: 'the issuer of the passport',
  },
  points: {
    1: { name: 'Public information', who: 'everybody' },
    2: {
      name: 'Composition, parts and dismantling',
      who: 'persons with a legitimate interest, and authorities',
    },
    3: {
      name: 'Test reports',
      who: 'notified bodies, market surveillance authorities and the Commission',
    },
    4: { name: 'This individual battery', who: 'persons with a legitimate interest' },
  },
  serial: 'Serial number',
  model: 'Model',
  issued: 'Issued',
  readAs: 'Shown to',
  states: {
    SIGNED: { name: 'Not yet active', sentence: 'This version is signed and not yet in use.' },
    ACTIVE: { name: 'Active', sentence: 'This is the version in force.' },
    SUPERSEDED: { name: 'Superseded', sentence: 'A newer version has taken the place of this one.' },
    REVOKED: { name: 'Revoked', sentence: 'The issuer has revoked this version. Do not rely on it.' },
    CEASED: {
      name: 'Ceased',
      sentence: 'The battery has been recycled. Its passport has ceased to exist; only this note remains.',
    },
  },
  newest: 'Open the version in force',
  since: (date) => `Since ${date}.`,
  how: 'How was this number made?',
  whence: 'Where does this come from?',
  rule: 'Rule',
  law: 'Law',
  noDerivation:
    'This value was computed from facts that you may not see. Who may see them can follow every step.',
  asAbove: 'as above',
  absent: 'no such fact was submitted',
  fromItem: 'as registered for the model or the battery',
  row: (document, row, column) => `${document}, row ${row}, column “${column}”`,
  hiddenDocument: 'a document that is not public as a whole',
  dividend: (numerator, denominator) => `exactly ${numerator} ÷ ${denominator}, rounded half to even`,
  records: (count) => (count === 1 ? '1 row' : `${count} rows`),
  notYet: (date, article) => `Not yet required: from ${date} on (${article})`,
  undetermined: 'Not determined',
  outOfScope: 'Not applicable',
  reasons: {},
  withheld: 'What is not shown here',
  withheldShort: 'Not shown',
  annex: 'Annex XIII, point',
  hint: 'Open a row to see how its value was made, down to the document and the row that it comes from.',
  withheldIntro:
    'Annex XIII of Regulation (EU) 2023/1542 says who may see what. These values exist and are bound by the signature, but you may not see them:',
  whoMay: 'May be seen by',
  individual: 'Data of this battery',
  individualNone: 'Nothing has been recorded yet.',
  individualWithheld: 'State of health, cycles and events of this battery',
  individualSigned: 'Each entry is signed on its own; entries are added and never changed.',
  predecessors: 'Made from these batteries',
  verification: 'Is this genuine?',
  signature: {
    valid: 'The signature is valid: everything on this page is as the issuer signed it.',
    unknown_key: 'The signature cannot be checked: the public key of the issuer is not known here.',
    broken: 'The signature does not fit what is stored. Do not rely on this page.',
  },
  signed: {
    valid: 'Signature valid',
    unknown_key: 'Signature not checked',
    broken: 'Signature does not fit',
  },
  technical: 'Version, hashes and key',
  notQualified:
    'It is an electronic signature (Ed25519), not a qualified electronic seal in the sense of the eIDAS Regulation.',
  labelCode: 'Label code',
  labelCodeFor: 'On the battery. Leads to this page, for all versions.',
  documentCode: 'Document code',
  documentCodeFor: 'Names this one version and its hashes. Check it with “tallyman verify”.',
  verifyOffline: 'To check it yourself, without this server, download the JSON and run',
  hashes: {
    receipt: 'Receipt',
    payload: 'Content',
    proof: 'Proof',
    key: 'Key',
    version: 'Version',
    rules: 'Rules',
  },
  language: 'Diese Seite auf Deutsch',
  notices: {
    notFound: {
      name: 'There is no passport here',
      sentence:
        'No battery passport is published at this address. Check the code on the battery, or ask its manufacturer.',
    },
  },
  yes: 'yes',
  no: 'no',
  units: {
    '1': '',
    a: 'years',
    month: 'months',
    cycle: 'cycles',
    'cycle/a': 'cycles a year',
    kgCO2e: 'kg CO₂e',
    'kgCO2e/kWh': 'kg CO₂e per kWh',
    Ohm: 'Ω',
  },
  material: { component: 'Component', name: 'Material', cas: 'CAS', mass: 'Mass' },
};

const de: Texts = {
  title: 'Batteriepass',
  groups: {
    identification: 'Kennzeichnung',
    conformity: 'Symbole und Konformität',
    footprint: 'CO₂-Fußabdruck',
    diligence: 'Lieferkette',
    materials: 'Materialien',
    circularity: 'Kreislaufwirtschaft',
    performance: 'Leistung und Haltbarkeit',
    other: 'Weiteres',
  },
  categories: {
    ev: 'Elektrofahrzeugbatterie',
    lmt: 'Batterie für leichte Verkehrsmittel',
    industrial: 'Industriebatterie',
    stationary: 'Stationäre Batterie',
  },
  statuses: {
    original: 'original',
    repurposed: 'umgenutzt',
    reused: 'wiederverwendet',
    remanufactured: 'wiederaufgearbeitet',
    waste: 'Abfall',
  },
  readers: {
    public: 'die Öffentlichkeit',
    legitimate_interest: 'eine Person mit berechtigtem Interesse',
    authority: 'eine Behörde',
    owner: 'den Aussteller des Passes',
  },
  points: {
    1: { name: 'Öffentliche Angaben', who: 'alle' },
    2: {
      name: 'Zusammensetzung, Teile und Zerlegung',
      who: 'Personen mit berechtigtem Interesse und Behörden',
    },
    3: {
      name: 'Prüfberichte',
      who: 'notifizierte Stellen, Marktüberwachungsbehörden und die Kommission',
    },
    4: { name: 'Diese einzelne Batterie', who: 'Personen mit berechtigtem Interesse' },
  },
  serial: 'Seriennummer',
  model: 'Modell',
  issued: 'Ausgestellt',
  readAs: 'Gezeigt für',
  states: {
    SIGNED: {
      name: 'Noch nicht gültig',
      sentence: 'Diese Fassung ist signiert und noch nicht in Gebrauch.',
    },
    ACTIVE: { name: 'Gültig', sentence: 'Dies ist die gültige Fassung.' },
    SUPERSEDED: { name: 'Ersetzt', sentence: 'Eine neuere Fassung hat diese ersetzt.' },
    REVOKED: {
      name: 'Widerrufen',
      sentence: 'Der Aussteller hat diese Fassung widerrufen. Verlassen Sie sich nicht darauf.',
    },
    CEASED: {
      name: 'Erloschen',
      sentence: 'Die Batterie wurde recycelt. Ihr Pass ist erloschen; nur dieser Hinweis bleibt.',
    },
  },
  newest: 'Gültige Fassung öffnen',
  since: (date) => `Seit ${date}.`,
  how: 'Wie entstand diese Zahl?',
  whence: 'Woher kommt diese Angabe?',
  rule: 'Regel',
  law: 'Recht',
  noDerivation:
    'Diese Angabe wurde aus Daten berechnet, die Sie nicht sehen dürfen. Wer sie sehen darf, kann jeden Schritt nachvollziehen.',
  asAbove: 'wie oben',
  absent: 'dazu wurde nichts eingereicht',
  fromItem: 'wie für das Modell oder die Batterie eingetragen',
  row: (document, row, column) => `${document}, Zeile ${row}, Spalte „${column}“`,
  hiddenDocument: 'ein Dokument, das nicht als Ganzes öffentlich ist',
  dividend: (numerator, denominator) =>
    `genau ${numerator} ÷ ${denominator}, zur nächsten geraden Ziffer gerundet`,
  records: (count) => (count === 1 ? '1 Zeile' : `${count} Zeilen`),
  notYet: (date, article) => `Noch nicht gefordert: erst ab ${date} (${article})`,
  undetermined: 'Nicht bestimmt',
  outOfScope: 'Entfällt',
  reasons: {
    'belongs to the individual battery, not to the model': 'gehört zur einzelnen Batterie, nicht zum Modell',
    'a fact that this field is computed from is missing': 'eine Angabe, aus der sie berechnet wird, fehlt',
    'the delegated act that defines the classes does not apply yet':
      'der delegierte Rechtsakt, der die Klassen festlegt, gilt noch nicht',
    'measured in use: see the individual data of this battery':
      'wird im Betrieb gemessen: siehe Daten dieser Batterie',
    'not asked for in category ev': 'bei Elektrofahrzeugbatterien nicht gefordert',
    'not asked for in category lmt': 'bei Batterien für leichte Verkehrsmittel nicht gefordert',
    'not asked for in category industrial': 'bei Industriebatterien nicht gefordert',
    'not asked for in category stationary': 'bei stationären Batterien nicht gefordert',
  },
  withheld: 'Was hier nicht gezeigt wird',
  withheldShort: 'Nicht gezeigt',
  annex: 'Anhang XIII, Nummer',
  hint: 'Öffnen Sie eine Zeile, um zu sehen, wie ihr Wert entstand: bis zum Dokument und zur Zeile, aus der er stammt.',
  withheldIntro:
    'Anhang XIII der Verordnung (EU) 2023/1542 legt fest, wer was sehen darf. Diese Angaben gibt es, und die Signatur bindet sie, aber Sie dürfen sie nicht sehen:',
  whoMay: 'Sehen dürfen sie',
  individual: 'Daten dieser Batterie',
  individualNone: 'Noch ist nichts aufgezeichnet.',
  individualWithheld: 'Zustand, Zyklen und Ereignisse dieser Batterie',
  individualSigned: 'Jeder Eintrag ist einzeln signiert; Einträge kommen hinzu und werden nie geändert.',
  predecessors: 'Hergestellt aus diesen Batterien',
  verification: 'Ist das echt?',
  signature: {
    valid: 'Die Signatur ist gültig: Alles auf dieser Seite ist so, wie es der Aussteller signiert hat.',
    unknown_key:
      'Die Signatur lässt sich nicht prüfen: Der öffentliche Schlüssel des Ausstellers ist hier nicht bekannt.',
    broken: 'Die Signatur passt nicht zu dem, was gespeichert ist. Verlassen Sie sich nicht auf diese Seite.',
  },
  signed: {
    valid: 'Signatur gültig',
    unknown_key: 'Signatur nicht prüfbar',
    broken: 'Signatur passt nicht',
  },
  technical: 'Fassung, Hashwerte und Schlüssel',
  notQualified:
    'Sie ist eine elektronische Signatur (Ed25519), kein qualifiziertes elektronisches Siegel im Sinne der eIDAS-Verordnung.',
  labelCode: 'Etikett-Code',
  labelCodeFor: 'Steht auf der Batterie. Führt für alle Fassungen zu dieser Seite.',
  documentCode: 'Dokument-Code',
  documentCodeFor: 'Nennt diese eine Fassung und ihre Hashwerte. Prüfen Sie ihn mit „tallyman verify“.',
  verifyOffline:
    'Um es selbst und ohne diesen Server zu prüfen, laden Sie die JSON-Datei herunter und rufen auf:',
  hashes: {
    receipt: 'Quittung',
    payload: 'Inhalt',
    proof: 'Nachweis',
    key: 'Schlüssel',
    version: 'Fassung',
    rules: 'Regeln',
  },
  language: 'This page in English',
  notices: {
    notFound: {
      name: 'Hier gibt es keinen Pass',
      sentence:
        'Unter dieser Adresse ist kein Batteriepass veröffentlicht. Prüfen Sie den Code auf der Batterie, oder fragen Sie den Hersteller.',
    },
  },
  yes: 'ja',
  no: 'nein',
  units: {
    '1': '',
    a: 'Jahre',
    month: 'Monate',
    cycle: 'Zyklen',
    'cycle/a': 'Zyklen im Jahr',
    kgCO2e: 'kg CO₂e',
    'kgCO2e/kWh': 'kg CO₂e je kWh',
    Ohm: 'Ω',
  },
  material: { component: 'Bauteil', name: 'Material', cas: 'CAS', mass: 'Masse' },
};

export const languages = ['en', 'de'] as const;
export type Language = (typeof languages)[number];
export const texts: Readonly<Record<Language, Texts>> = { en, de };

/** The language that a browser asks for (RFC 9110, 12.5.4), English if it asks for none that there is. */
export function languageFor(acceptLanguage: string | undefined): Language {
  const wanted = (acceptLanguage ?? '')
    .split(',')
    .map((part, order) => {
      const [tag = '', ...parameters] = part.trim().toLowerCase().split(';');
      const quality = parameters.map((each) => /^\s*q=(\d(?:\.\d{1,3})?)\s*$/.exec(each)?.[1]).find(Boolean);
      return { language: tag.split('-')[0], quality: quality === undefined ? 1 : Number(quality), order };
    })
    .filter(({ quality }) => quality > 0)
    .sort((a, b) => b.quality - a.quality || a.order - b.order);
  for (const { language } of wanted) {
    const found = languages.find((each) => each === language);
    if (found) return found;
  }
  return 'en';
}
