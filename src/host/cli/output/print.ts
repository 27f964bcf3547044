/** Writes to stdout. If the reader closes the pipe (`| head`), the rest is dropped, and that is no error. */
export function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** One document, and nothing else on stdout. */
export function printJson(value: unknown): void {
  print(JSON.stringify(value, null, 2));
}

export function complain(text: string): void {
  process.stderr.write(`${text}\n`);
}

/** For people or for scripts, as requested. */
export function show(json: boolean | undefined, value: unknown, forPeople: () => string): void {
  if (json) printJson(value);
  else print(forPeople());
}
