// The pages of the navigation, in its order: address, name, icon.
export const PAGES = [
  ["Cluster", [
    ["/", "Overview", "overview"],
    ["/brokers", "Brokers", "brokers"],
    ["/topics", "Topics", "topics"],
    ["/groups", "Groups", "groups"],
    ["/transactions", "Transactions", "transactions"],
  ]],
  ["Pipelines", [
    ["/pipelines", "Pipelines", "pipelines"],
    ["/dead-letters", "Dead letters", "deadletters"],
    ["/trace", "Trace a record", "records"],
    ["/schemas", "Schemas", "schemas"],
  ]],
  ["Access", [
    ["/acls", "ACLs", "acls"],
    ["/users", "Users", "users"],
    ["/quotas", "Quotas", "quotas"],
    ["/audit", "Audit", "audit"],
  ]],
];
