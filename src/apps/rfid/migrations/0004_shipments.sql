-- What leaves, and what comes back.
--
--   shipments        PLANNED -> LOADING -> SHIPPED, never back
--   shipment_lines   one for each outbound license plate (OBLPN): open, loaded (it has a basket), closed (that came back)
--
-- Locks are taken in the order shipment, basket, line.

-- When it came back; null again when it is loaded after that.
alter table rfid.baskets add column returned_at timestamptz;

create table rfid.shipments (
  id bigint generated always as identity primary key,
  tenant_id text collate "C" not null,
  number text not null check (octet_length(number) between 1 and 256),
  status text not null default 'PLANNED' check (status in ('PLANNED', 'LOADING', 'SHIPPED')),
  created_at timestamptz not null default now(),
  loading_at timestamptz,
  shipped_at timestamptz,
  unique (tenant_id, number)
);

create table rfid.shipment_lines (
  id bigint generated always as identity primary key,
  tenant_id text collate "C" not null,
  shipment_id bigint not null references rfid.shipments (id),
  oblpn text not null check (octet_length(oblpn) between 1 and 256),
  created_at timestamptz not null default now(),
  basket_id bigint,
  -- When a camera saw the plate at a door, and which.
  loaded_at timestamptz,
  loaded_by text,
  closed_at timestamptz,
  unique (tenant_id, oblpn),
  check ((basket_id is null) = (loaded_at is null)),
  check (closed_at is null or basket_id is not null)
);
create index shipment_lines_of on rfid.shipment_lines (shipment_id);
-- A basket is on its way with one line at a time.
create unique index shipment_lines_open on rfid.shipment_lines (basket_id)
  where closed_at is null and basket_id is not null;

-- Who was seen at a door around a time. Reads come nearly in order, so a block range of them is a stretch of time; a
-- tree would cost every read what this costs one in thousands.
create index processings_by_time on rfid.tag_read_processings
  using brin (event_timestamp) with (pages_per_range = 32, autosummarize = on);

select tallyman.isolate('rfid.shipments');
select tallyman.isolate('rfid.shipment_lines');

-- Baskets that were read at a return door: marked, and their lines closed. The caller has them locked. A return that is
-- told late closes only what was loaded before it.
create function rfid.return_baskets(p_baskets bigint[], p_at timestamptz[]) returns void
language plpgsql
set plan_cache_mode = force_generic_plan
as $$
declare
  v_tenants text[];
  v_epcs text[];
  v_at timestamptz[];
  v_shipments bigint[];
begin
  with marked as (
    update rfid.baskets b set returned_at = r.at
      from (select u.basket_id, max(u.at) as at, o.returned_at as before
              from unnest(p_baskets, p_at) as u (basket_id, at) join rfid.baskets o on o.id = u.basket_id group by 1, 3) r
     where b.id = r.basket_id
       and (b.returned_at is null or b.returned_at < r.at)
       and not exists (select 1 from rfid.shipment_lines l
                        where l.basket_id = b.id and l.closed_at is null and l.loaded_at > r.at)
    returning b.tenant_id, b.epc_hex, r.at, r.before, b.moved_at
  )
  select array_agg(m.tenant_id), array_agg(m.epc_hex), array_agg(m.at) into v_tenants, v_epcs, v_at
    from marked m
   -- One that stays at the door is read again and again, and was returned once.
   where m.before is null or m.moved_at > m.before;
  -- The first return after the loading is the one that ends it.
  with closed as (
    update rfid.shipment_lines l set closed_at = r.at
      from (select o.id, min(u.at) as at
              from unnest(p_baskets, p_at) as u (basket_id, at)
              join rfid.shipment_lines o on o.basket_id = u.basket_id and o.closed_at is null and o.loaded_at <= u.at
             group by 1) r
     where l.id = r.id
    returning l.shipment_id
  )
  select array_agg(distinct c.shipment_id) into v_shipments from closed c;

  if v_epcs is not null then
    perform tallyman_events.emit_many(
        array_agg('rfid.basket.returned'::text), array_agg('basket'::text), v_epcs,
        array_agg(json_build_object('epc_hex', e.epc_hex) order by e.n), v_tenants, occurred_at => v_at)
      from unnest(v_epcs) with ordinality as e (epc_hex, n);
  end if;
  if v_shipments is not null then
    perform rfid.tell_closed(v_shipments);
  end if;
end $$;
