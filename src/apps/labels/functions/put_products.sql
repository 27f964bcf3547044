-- Creates or changes products: fields that are not given stay, attributes are merged, an attribute given as null is removed.
-- Returns which products were created and which have changed. All of them stay locked until the commit.
--
-- Creates the missing products first, then locks all, both in the order of their SKUs: two writers with overlapping
-- products wait for each other and never deadlock.
-- products: [{sku, name, price, has_price, attributes}]
create or replace function labels.put_products(p_tenant text, p_store bigint, p_products json)
returns table (id bigint, sku text, is_new boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_made bigint[];
begin
  with made as (
    insert into labels.products (tenant_id, store_id, sku, name, price, attributes)
    select p_tenant, p_store, u.sku, coalesce(u.name, ''), u.price, jsonb_strip_nulls(coalesce(u.attributes, '{}'))
      from json_to_recordset(p_products) as u (sku text, name text, price numeric, attributes jsonb)
     where not exists (select 1 from labels.products p where p.store_id = p_store and p.sku = u.sku)
     order by u.sku collate "C"
    on conflict do nothing
    returning id
  )
  select array_agg(m.id) into v_made from made m;

  perform 1 from labels.products p
    where p.store_id = p_store
      and p.sku in (select u.sku from json_to_recordset(p_products) as u (sku text))
    order by p.sku for no key update;

  return query
  with changed as (
    update labels.products p
       set name = n.name, price = n.price, attributes = n.attributes, updated_at = now()
      from json_to_recordset(p_products)
             as u (sku text, name text, price numeric, has_price boolean, attributes jsonb)
      join labels.products b on b.store_id = p_store and b.sku = u.sku,
           lateral (select coalesce(u.name, b.name) as name,
                           case when u.has_price then u.price else b.price end as price,
                           jsonb_strip_nulls(b.attributes || coalesce(u.attributes, '{}')) as attributes) n
     where p.id = b.id and p.id <> all (coalesce(v_made, '{}'))
       and (p.name, p.price, p.attributes) is distinct from (n.name, n.price, n.attributes)
    returning p.id, p.sku
  )
  select c.id, c.sku, false from changed c
  union all
  select p.id, p.sku, true from labels.products p where p.id = any (v_made);
end $$;
