export const NEIGHBOUR = {
  name: 'neighbour',
  summary:
    'A tenant that sends 50 requests a second (half POST /v1/jobs, half GET /v1/jobs), while another one does its worst.',
} as const;
