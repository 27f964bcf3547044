-- Registered here, so that it is known to be internal before the first worker starts.
select tallyman.register_kind('events.purge', queue => 'webhooks', priority => 3, max_attempts => 5);
