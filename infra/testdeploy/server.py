"""A moto server for testdeploy.sh, on a port of its own choice, which it prints.

moto has AWS's API in memory, and can be told to look at who asks (POST 0 to /moto-api/reset-auth). Of DynamoDB it then asks for rights on "*", and it knows no
conditions; here it asks for what AWS asks: the table, the actions within a transaction, the partition keys of what is asked for.
"""

import fnmatch
import json
import urllib.parse
import xml.etree.ElementTree

from moto import settings
from moto.core.authorization import ActionAuthenticatorMixin
from moto.core.exceptions import JsonRESTError
from moto.dynamodb.responses import DynamoHandler
from moto.iam.access_control import IAMPolicyStatement, IAMRequest, IAMRequestBase, PermissionResult, S3IAMRequest
from moto.s3.responses import S3Response
from moto.server import DomainDispatcherApplication, create_backend_app
from moto.sqs.models import Queue
from werkzeug.serving import make_server

WITHIN_TRANSACTIONS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}


def needs(action, body):
    """What a request to DynamoDB asks for: (action, table, partition keys)."""
    if action == "TransactWriteItems":
        for item in body["TransactItems"]:
            for kind, what in item.items():
                yield WITHIN_TRANSACTIONS[kind], what["TableName"], [key_of(what.get("Key") or what["Item"])]
    elif action in ("BatchWriteItem", "BatchGetItem"):
        for table, requests in body["RequestItems"].items():
            keys = []
            for r in requests if isinstance(requests, list) else requests["Keys"]:
                keys.append(key_of(r.get("DeleteRequest", {}).get("Key") or r.get("PutRequest", {}).get("Item") or r))
            yield action, table, keys
    elif action == "Query":
        keys = [v["S"] for name, v in body["ExpressionAttributeValues"].items() if is_partition(name, body)]
        yield action, body["TableName"], keys or ["?"]
    elif "Key" in body or "Item" in body:
        yield action, body["TableName"], [key_of(body.get("Key") or body["Item"])]
    else:
        yield action, body.get("TableName", "*"), []


def key_of(item):
    return item["pk"]["S"]


def is_partition(value, body):
    """Whether a value of a query is that of its partition key, which comes first in its condition."""
    first = body["KeyConditionExpression"].replace("=", " ").split(" AND ")[0].split(" and ")[0]
    return value in first.split()


def allows(statement, action, resource, keys):
    if statement["Effect"] != "Allow":
        return False
    for given, wanted in ((statement["Action"], "dynamodb:" + action), (statement["Resource"], resource)):
        given = given if isinstance(given, list) else [given]
        if not any(fnmatch.fnmatchcase(wanted, g) for g in given):
            return False
    for operator, condition in statement.get("Condition", {}).items():
        if operator != "ForAllValues:StringLike" or list(condition) != ["dynamodb:LeadingKeys"]:
            raise NotImplementedError(f"condition {operator} {condition}")
        if not all(any(fnmatch.fnmatchcase(k, p) for p in condition["dynamodb:LeadingKeys"]) for k in keys):
            return False
    return True


def enforced():
    if ActionAuthenticatorMixin.request_count < settings.INITIAL_NO_AUTH_ACTION_COUNT:
        ActionAuthenticatorMixin.request_count += 1
        return False
    return True


def authorize_table(self, resource="*"):
    if not enforced():
        return
    request = IAMRequest(account_id=self.current_account, method=self.method, path="/", data=self.data, body=self.raw_body, headers=self.headers, action=self._get_action())
    request.check_signature()
    statements = []
    for p in request._access_key.collect_policies():
        document = p["policy_document"] if isinstance(p, dict) else p
        statements += json.loads(document)["Statement"]
    for action, table, keys in needs(self._get_action(), json.loads(self.raw_body)):
        arn = f"arn:aws:dynamodb:{self.region}:{self.current_account}:table/{table}"
        if not any(allows(s, action, arn, keys) for s in statements):
            raise JsonRESTError("AccessDeniedException", f"not authorized to perform dynamodb:{action} on {arn}, keys {keys}")


DynamoHandler._authenticate_and_authorize_normal_action = authorize_table

authorize_object = S3Response._authenticate_and_authorize_s3_action


def authorize_objects(self, bucket_name=None, key_name=None):
    """Of a deletion of many objects, each has to be allowed; and a signed URL has its signature, which is not looked at here, in its query."""
    if self.data.get("Action") == "DeleteObject" and key_name is None:
        root = xml.etree.ElementTree.fromstring(self.raw_body)
        for key in [e.text for e in root.iter() if e.tag.split("}")[-1] == "Key"]:
            authorize_object(self, bucket_name=bucket_name, key_name=key)
        return
    query = urllib.parse.parse_qs(urllib.parse.urlparse(self.uri).query)
    if "X-Amz-Credential" not in query:
        authorize_object(self, bucket_name=bucket_name, key_name=key_name)
    elif enforced():
        headers = {"Authorization": f"AWS4-HMAC-SHA256 Credential={query['X-Amz-Credential'][0]}, ", "X-Amz-Security-Token": query["X-Amz-Security-Token"][0]}
        request = S3IAMRequest(account_id=self.current_account, method=self.method, path="/", data=self.data, body=self.raw_body, headers=headers, action=self._get_action())
        request.check_action_permitted("arn:aws:s3:::" + "/".join(n for n in (bucket_name, key_name) if n))


S3Response._authenticate_and_authorize_s3_action = authorize_objects

sign_object = S3IAMRequest._create_aws_request


def sign_as_sent(self):
    """moto has decoded the query, which was signed encoded."""
    path, mark, query = self._path.partition("?")
    self._path = path + mark + urllib.parse.urlencode(urllib.parse.parse_qsl(query, keep_blank_values=True), quote_via=urllib.parse.quote, safe="")
    return sign_object(self)


S3IAMRequest._create_aws_request = sign_as_sent

check_right = IAMRequestBase.check_action_permitted


def check_right_by_name(self, resource):
    """A batch of messages takes the right to send one."""
    if self._action == "sqs:SendMessageBatch":
        self._action = "sqs:SendMessage"
    check_right(self, resource)


IAMRequestBase.check_action_permitted = check_right_by_name

is_permitted = IAMPolicyStatement.is_action_permitted


def is_permitted_over_tls(self, *args, **kwargs):
    """Who is refused for not using TLS: nobody here, where there is none."""
    if self._statement.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}:
        return PermissionResult.NEUTRAL
    return is_permitted(self, *args, **kwargs)


IAMPolicyStatement.is_action_permitted = is_permitted_over_tls

# moto forgets a queue's policy when another attribute is set, does not know who may use a queue for its dead messages, and answers with spaces where AWS has none.
Queue.BASE_ATTRIBUTES = [*Queue.BASE_ATTRIBUTES, "RedriveAllowPolicy"]
Queue.redrive_allow_policy = None
attributes, set_attributes = Queue.attributes.fget, Queue._set_attributes


def compact(self):
    result = attributes(self)
    if result.get("RedrivePolicy"):
        result["RedrivePolicy"] = json.dumps(json.loads(result["RedrivePolicy"]), separators=(",", ":"))
    if not result["RedriveAllowPolicy"]:
        del result["RedriveAllowPolicy"]
    return result


def keep_policy(self, given, now=None):
    set_attributes(self, {"Policy": getattr(self, "policy", None), **given}, now)


Queue.attributes, Queue._set_attributes = property(compact), keep_policy

server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.port, flush=True)
server.serve_forever()
