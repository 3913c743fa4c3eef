-- The CRM's four smoke tests. They stop with an error at the first expectation that is not met:
--   psql -v ON_ERROR_STOP=1 -f smoke-tests.sql
-- Run them as the role that installed schema.sql, while no worker runs and the outbox has no undelivered rows.

\set QUIET on
\pset tuples_only on
\set expect 'CREATE FUNCTION pg_temp.expect(what text, met boolean) RETURNS text LANGUAGE plpgsql AS $f$ BEGIN IF met IS NOT TRUE THEN RAISE EXCEPTION ''not met: %'', what; END IF; RETURN ''ok: '' || what; END $f$;'
\set a aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa
\set b bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb
:expect

-- 1. Rows that were inserted in another order are claimed by created_at.
INSERT INTO public.outbox (tenant_id, topic, payload, created_at)
VALUES (gen_random_uuid(), 'test.order', '{"seq": 3}', now() - interval '1 hour');
INSERT INTO public.outbox (tenant_id, topic, payload, created_at)
VALUES (gen_random_uuid(), 'test.order', '{"seq": 1}', now() - interval '3 hours');
INSERT INTO public.outbox (tenant_id, topic, payload, created_at)
VALUES (gen_random_uuid(), 'test.order', '{"seq": 2}', now() - interval '2 hours');
SELECT pg_temp.expect('1. a claim of 10 returns seq 1, 2, 3',
         array_agg((c.payload ->> 'seq')::int ORDER BY c.ordinality) = '{1,2,3}'
         AND bool_and(c.processing_token = :'a' AND c.delivered_at IS NULL))
  FROM app.outbox_claim(10, :'a', NULL) WITH ORDINALITY c;

-- 3. A claim with token a can only be marked with token a. (Before 2, which ends this session.)
SELECT pg_temp.expect('3. outbox_mark_delivered with another token answers 0',
         app.outbox_mark_delivered(:'b', ARRAY (SELECT id FROM public.outbox WHERE processing_token = :'a')) = 0);
SELECT pg_temp.expect('3. with the token of the claim it answers their number',
         app.outbox_mark_delivered(:'a', ARRAY (SELECT id FROM public.outbox WHERE processing_token = :'a')) = 3);

-- 4. Within one tenant, an external id is unique, and so is an e-mail in any case.
BEGIN;
DO $$
DECLARE
  v_tenant  uuid := gen_random_uuid();
  v_refused int := 0;
BEGIN
  INSERT INTO public.contact_identities (tenant_id, contact_id, type, value)
  VALUES (v_tenant, gen_random_uuid(), 'external_id', 'ext-1'),
         (v_tenant, gen_random_uuid(), 'email', 'Ada@Example.com');
  BEGIN
    INSERT INTO public.contact_identities (tenant_id, contact_id, type, value)
    VALUES (v_tenant, gen_random_uuid(), 'external_id', 'ext-1');
  EXCEPTION
    WHEN unique_violation THEN v_refused := v_refused + 1;
  END;
  BEGIN
    INSERT INTO public.contact_identities (tenant_id, contact_id, type, value)
    VALUES (v_tenant, gen_random_uuid(), 'email', 'ada@EXAMPLE.com');
  EXCEPTION
    WHEN unique_violation THEN v_refused := v_refused + 1;
  END;
  PERFORM pg_temp.expect('4. both identities are refused', v_refused = 2);
END $$;
SELECT 'ok: 4. a second external_id and an e-mail in another case are refused';
ROLLBACK;

-- 2. Two sessions claim 5 each, one right after the other: no id in common.
INSERT INTO public.outbox (tenant_id, topic, payload)
SELECT gen_random_uuid(), 'test.claim', jsonb_build_object('n', n) FROM generate_series(1, 10) n;
SELECT array_agg(id) AS first FROM app.outbox_claim(5, :'a', NULL) \gset
\connect
:expect
SELECT array_agg(id) AS second FROM app.outbox_claim(5, :'b', NULL) \gset
SELECT pg_temp.expect('2. two sessions claim 5 each, and no id in common',
         cardinality(:'first'::uuid[]) = 5 AND cardinality(:'second'::uuid[]) = 5
         AND NOT :'first'::uuid[] && :'second'::uuid[]);
SELECT pg_temp.expect('2. each marks its own',
         app.outbox_mark_delivered(:'a', :'first') = 5 AND app.outbox_mark_delivered(:'b', :'second') = 5);
