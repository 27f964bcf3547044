/** Writes to stdout. If the reader closes the pipe (`| head`), the rest is dropped, and that is no error. */
export function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** Resolves when stdout has taken it. Fails if it does not: what follows must not happen without it. */
export function printed(text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(`${text}\n`, (error) => (error ? reject(error) : resolve()));
  });
}

/** One document, and nothing else on stdout. */
export function printJson(value: unknown): void {
  print(jsonText(value));
}

export const jsonText = (value: unknown): string => JSON.stringify(value, null, 2);

export function complain(text: string): void {
  process.stderr.write(`${text}\n`);
}

/** For people or for scripts, as requested. */
export function show(json: boolean | undefined, value: unknown, forPeople: () => string): void {
  if (json) printJson(value);
  else print(forPeople());
}
