// Standard Schema (https://standardschema.dev, 1.1): the interface without its package, so zod, valibot, arktype and
// others work unchanged. Reads the answer of a schema in one place for all callers.

export type StandardSchema<Input = unknown, Output = Input> = {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    readonly validate: (value: unknown) => SchemaResult | Promise<SchemaResult>;
  };
};

type SchemaResult = {
  readonly issues?: readonly SchemaIssue[] | undefined;
};

type SchemaIssue = {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
};

/** The answer of a schema: the parsed value, or the issues; undefined if the answer is invalid. */
export type SchemaAnswer =
  | { readonly value: unknown }
  | { readonly issues: readonly { readonly path: readonly string[]; readonly message: string }[] }
  | undefined;

export function readAnswer(result: unknown): SchemaAnswer {
  if (typeof result !== 'object' || result === null) return undefined;
  const { issues, value } = result as { issues?: unknown; value?: unknown };
  if (issues === undefined) return { value };
  if (!Array.isArray(issues)) return undefined;
  return {
    issues: (issues as SchemaIssue[]).map(({ message, path }) => ({
      path: (path ?? []).map((part) => String(typeof part === 'object' ? part.key : part)),
      message,
    })),
  };
}

export function isSchema(value: unknown): value is StandardSchema {
  // some libraries make their schemas functions
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return false;
  const standard = (value as { '~standard'?: { validate?: unknown } })['~standard'];
  return typeof standard?.validate === 'function';
}
