-- The kinds of its jobs: they can be enqueued before the first worker starts.
select tallyman.register_kind('webhook.deliver', queue => 'webhooks', priority => 3, max_attempts => 5);
select tallyman.register_kind('webhook.purge', queue => 'webhooks', priority => 3, max_attempts => 5);
