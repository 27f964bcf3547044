-- The content hash of a read as a .NET program computes it from `DateTime.ToString("O")` in UTC, which writes seven digits of fraction:
-- base64 of SHA-256 of `deviceId|EPC|2026-03-01T09:30:00.1234560Z`. For those who compare their keys with ours; ours, of six digits,
-- is `rfid.tag_read_processings.content_hash`. Times are kept to the microsecond, so the seventh digit is 0: a source that counts
-- in tenths of a microsecond has other hashes for its other reads.
create or replace function rfid.content_hash_o(p_device_id text, p_epc text, p_at timestamptz) returns text
language sql immutable parallel safe as $$
  select encode(sha256(convert_to(
    btrim(p_device_id) || '|' || upper(btrim(p_epc)) || '|'
      || to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US') || '0Z', 'UTF8')), 'base64')
$$;
