/** A JSON text from the cluster; undefined if it is none. The caller checks what it needs of it. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
