-- Which master secret a key is hashed under; null: written before there could be several.
alter table tallyman_server.api_keys add column hash_key text;
