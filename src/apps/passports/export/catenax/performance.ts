import type { AspectFields } from './fields.ts';
import { type Draft, gap } from './supplement.ts';

export const ratedPerformance = (fields: AspectFields): Draft => ({
  voltage: {
    min: fields.number('minimumVoltage'),
    max: fields.number('maximumVoltage'),
    nominal: fields.number('nominalVoltage'),
  },
  roundTripEfficiency: {
    depthOfDischarge: gap,
    initial: fields.number('initialEfficiency'),
    '50PercentLife': fields.number('halfLifeEfficiency'),
  },
  ...(fields.get('ratedEnergy') === undefined ? {} : { energy: { value: fields.number('ratedEnergy') } }),
  resistance: { cell: gap, pack: fields.number('initialResistance') },
  power: { value: fields.number('originalPower'), at20SoC: gap, at80SoC: gap },
  capacity: {
    value: fields.number('ratedCapacity'),
    thresholdExhaustion: fields.number('exhaustionThreshold'),
  },
  temperature: { lower: fields.number('idleTemperatureMin'), upper: fields.number('idleTemperatureMax') },
  selfDischargingRate: fields.number('initialSelfDischarge'),
  lifetime: {
    expectedYears: fields.number('lifetimeYears'),
    report: fields.documents('cycleTest'),
    cycleLifeTesting: {
      temperature: gap,
      cycles: fields.number('lifetimeCycles'),
      depthOfDischarge: gap,
      appliedChargeRate: fields.number('cycleTestRate'),
      appliedDischargeRate: gap,
    },
  },
});

export const dynamicPerformance = (fields: AspectFields): Draft => ({
  stateOfCharge: fields.record('stateOfCharge'),
  fullCycles: fields.record('fullCycles'),
  selfDischargingRate: fields.number('currentSelfDischarge'),
  power: { fade: fields.record('powerFade'), remaining: fields.record('remainingPower') },
  capacity: {
    fade: fields.record('capacityFade'),
    throughput: fields.record('capacityThroughput'),
    capacity: fields.record('remainingCapacity'),
  },
  roundTripEfficiency: {
    fade: fields.record('efficiencyFade'),
    remaining: fields.record('remainingEfficiency'),
  },
  resistance: {
    increase: { pack: fields.record('resistanceIncrease'), cell: { value: gap, time: gap } },
    remaining: { pack: { value: gap, time: gap }, cell: { value: gap, time: gap } },
  },
  energy: { soce: fields.record('stateOfCertifiedEnergy'), remaining: fields.record('remainingEnergy') },
  ...(fields.get('accidents') === undefined ? {} : { negativeEvents: fields.documents('accidents') }),
});
