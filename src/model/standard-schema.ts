// Any Standard Schema (https://standardschema.dev, 1.1), as its interface says and without its package: zod, valibot,
// arktype and others are used as they are. What a schema says of a value is read here, once for everybody.

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

/** What a schema answered: the value as it made it, or what is wrong with it; neither if the answer is no answer. */
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
