-- Built-in templates that labels show are kept like others, so that a task names the version it was made with.
alter table labels.templates add column built_in boolean not null default false;
