// JsonOf: the type of a value after it went through the database as JSON. A Date becomes text, and a property
// without a value is absent. What JSON cannot carry (a BigInt, a function) is refused at enqueue, and is `never`
// here.

export type JsonOf<T> = unknown extends T
  ? unknown
  : T extends string | number | boolean | null
    ? T
    : T extends { toJSON(...args: never[]): infer Written }
      ? JsonOf<Written>
      : T extends bigint | symbol | undefined | ((...args: never[]) => unknown)
        ? never
        : T extends readonly unknown[]
          ? { [Index in keyof T]: JsonOf<T[Index]> }
          : T extends object
            ? JsonObject<T>
            : never;

type JsonObject<T extends object> = Flat<
  {
    [Key in keyof T as undefined extends T[Key] ? never : Named<Key>]: JsonOf<T[Key]>;
  } & {
    [Key in keyof T as undefined extends T[Key] ? Named<Key> : never]?: JsonOf<
      Exclude<T[Key], undefined>
    >;
  }
>;

type Named<Key> = Key extends symbol ? never : Key;

/** One object type instead of an intersection, so editors show it readably. */
type Flat<T> = { [Key in keyof T]: T[Key] };
