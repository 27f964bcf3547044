import type { FastifyInstance } from 'fastify';

/** Knows which methods there are at a path, for `405` and for browsers that ask beforehand. */
export class Methods {
  readonly #routes: { readonly pattern: RegExp; readonly methods: readonly string[] }[] = [];

  /** Hears of every route that is added after this. */
  constructor(app: FastifyInstance) {
    app.addHook('onRoute', ({ method, url }) => {
      this.#routes.push({ pattern: patternOf(url), methods: [method].flat() });
    });
  }

  /** Sorted; empty: there is nothing at this path. */
  at(path: string): readonly string[] {
    const found = this.#routes.filter(({ pattern }) => pattern.test(path));
    return [...new Set(found.flatMap(({ methods }) => methods))].sort();
  }
}

/** `/v1/jobs/:id` matches `/v1/jobs/7`, and `*` the rest of a path. */
function patternOf(url: string): RegExp {
  const parts = url.split('/').map((part) => {
    if (part.startsWith(':')) return '[^/]+';
    return part === '*' ? '.*' : part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  });
  return new RegExp(`^${parts.join('/')}$`);
}
