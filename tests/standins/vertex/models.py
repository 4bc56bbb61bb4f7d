"""The model registry: models, their versions and aliases, evaluations; and endpoints that serve them."""

import threading
from typing import Any

from google.cloud.aiplatform_v1 import Model
from google.protobuf import empty_pb2
from google.protobuf.message import Message

from tests.standins.vertex import protos, rules
from tests.standins.vertex.errors import ApiError, Findings
from tests.standins.vertex.ids import Ids
from tests.standins.vertex.operations import Operations
from tests.standins.vertex.routes import Request, route
from tests.standins.vertex.store import Store, page

DEFAULT = "default"


class Models:
    """Models by resource name, each a list of versions, of which the n-th has the id n."""

    def __init__(self, operations: Operations, ids: Ids, *, only_gs: bool) -> None:
        self._operations, self._ids, self._only_gs = operations, ids, only_gs
        self.versions: dict[str, list[Message]] = {}
        self.evaluations, self.slices = Store("ModelEvaluation"), Store("ModelEvaluationSlice")
        self._lock = threading.RLock()

    @route("POST", "{location}/models:upload")
    def upload(self, request: Request) -> Message:
        asked = protos.parse(request.body, protos.new("UploadModelRequest"))
        rules.check_model(asked, only_gs=self._only_gs)
        with self._lock:
            if asked.parent_model:
                name = f"{request.parent}/models/{asked.parent_model.rpartition('/')[2]}"
                self._find(name)
            else:
                name = f"{request.parent}/models/{asked.model_id or self._ids.new()}"
                if name in self.versions:
                    raise ApiError("ALREADY_EXISTS", f"The Model {name!r} already exists.")
            versions = self.versions.setdefault(name, [])
            model, aliases = protos.new("Model"), list(asked.model.version_aliases)
            model.CopyFrom(asked.model)
            del model.version_aliases[:]
            if model.container_spec.image_uri:
                model.supported_deployment_resources_types.append(Model.DeploymentResourcesType.DEDICATED_RESOURCES)
            model.name, model.version_id = name, str(len(versions) + 1)
            for stamp in (model.create_time, model.version_create_time, model.update_time, model.version_update_time):
                stamp.GetCurrentTime()
            versions.append(model)
            # A model has exactly one default version: the first, until another one takes the alias.
            self._move(name, model, aliases + [DEFAULT] * (len(versions) == 1 and DEFAULT not in aliases))
            response = protos.new("UploadModelResponse", model=name, model_version_id=model.version_id)
        return self._operations.start(name, protos.new("UploadModelOperationMetadata"), response)

    @route("GET", "{location}/models/{id}")
    def get(self, request: Request) -> Message:
        return self._find(f"{request.parent}/models/{request.id}")

    @route("GET", "{location}/models")
    def list_all(self, request: Request) -> dict[str, Any]:
        with self._lock:
            names = [name for name in reversed(self.versions) if name.startswith(request.parent)]
            return page([self._find(name) for name in names], "models", request.query)

    @route("GET", "{location}/models/{id}:listVersions")
    def list_versions(self, request: Request) -> dict[str, Any]:
        name = f"{request.parent}/models/{request.id}"
        self._find(name)
        return page(list(reversed(self.versions[name])), "models", request.query)

    @route("POST", "{location}/models/{id}:mergeVersionAliases")
    def merge_aliases(self, request: Request) -> Message:
        asked = protos.parse(request.body, protos.new("MergeVersionAliasesRequest"))
        name = f"{request.parent}/models/{request.id}"
        with self._lock:
            model = self._find(name)
            removed = [alias[1:] for alias in asked.version_aliases if alias.startswith("-")]
            if DEFAULT in removed:
                raise ApiError("INVALID_ARGUMENT", "version_aliases: the alias default can only be moved.")
            added = [alias for alias in asked.version_aliases if not alias.startswith("-")]
            for alias in set(removed) & set(model.version_aliases):
                model.version_aliases.remove(alias)
            self._move(model.name, model, added)
            return model

    @route("DELETE", "{location}/models/{id}")
    def delete(self, request: Request) -> Message:
        name = self._find(f"{request.parent}/models/{request.id}").name
        with self._lock:
            del self.versions[name]
        return self._operations.start(name, protos.new("DeleteOperationMetadata"), empty_pb2.Empty())

    @route("POST", "{location}/models/{id}/evaluations:import")
    def import_evaluation(self, request: Request) -> Message:
        evaluation = protos.parse(request.body, protos.new("ImportModelEvaluationRequest")).model_evaluation
        findings = Findings()
        field = "model_evaluation.metrics_schema_uri"
        uri = evaluation.metrics_schema_uri
        findings.expect(uri.startswith("gs://"), field, f"{uri!r} is no gs:// URI.")
        findings.expect(evaluation.HasField("metrics"), "model_evaluation.metrics", "It is missing.")
        findings.refuse()
        model = self._find(f"{request.parent}/models/{request.id}")
        stored = protos.new("ModelEvaluation")
        stored.CopyFrom(evaluation)
        stored.name = f"{model.name}@{model.version_id}/evaluations/{self._ids.new()}"
        stored.create_time.GetCurrentTime()
        return self.evaluations.add(stored)

    @route("POST", "{location}/models/{id}/evaluations/{evaluation}/slices:batchImport")
    def import_slices(self, request: Request) -> Message:
        asked = protos.parse(request.body, protos.new("BatchImportModelEvaluationSlicesRequest"))
        answer, evaluation = protos.new("BatchImportModelEvaluationSlicesResponse"), self.get_evaluation(request)
        for wanted in asked.model_evaluation_slices:
            stored = protos.new("ModelEvaluationSlice")
            stored.CopyFrom(wanted)
            stored.name = f"{evaluation.name}/slices/{self._ids.new()}"
            answer.imported_model_evaluation_slices.append(self.slices.add(stored).name)
        return answer

    @route("GET", "{location}/models/{id}/evaluations")
    def list_evaluations(self, request: Request) -> dict[str, Any]:
        model = self._find(f"{request.parent}/models/{request.id}")
        found = self.evaluations.all(f"{model.name}@{model.version_id}/")
        return page(found, "modelEvaluations", request.query)

    @route("GET", "{location}/models/{id}/evaluations/{evaluation}")
    def get_evaluation(self, request: Request) -> Message:
        model = self._find(f"{request.parent}/models/{request.id}")
        return self.evaluations.get(f"{model.name}@{model.version_id}/evaluations/{request.parts['evaluation']}")

    def _find(self, name: str) -> Message:
        """Returns the version that a name with `@version` or `@alias` means; without, the default version."""
        plain, _, version = name.partition("@")
        for model in self.versions.get(plain, []):
            if model.version_id == version or (version or DEFAULT) in model.version_aliases:
                return model
        raise ApiError("NOT_FOUND", f"The Model {name!r} does not exist.")

    def _move(self, name: str, model: Message, aliases: list[str]) -> None:
        for alias in dict.fromkeys(aliases):
            for other in self.versions[name]:
                if alias in other.version_aliases:
                    other.version_aliases.remove(alias)
            model.version_aliases.append(alias)


class Endpoints:
    """Endpoints; nothing is served, only said to be."""

    def __init__(self, models: Models, operations: Operations, ids: Ids) -> None:
        self._models, self._operations, self._ids = models, operations, ids
        self.store = Store("Endpoint")

    @route("POST", "{location}/endpoints")
    def create(self, request: Request) -> Message:
        endpoint = protos.parse(request.body, protos.new("Endpoint"))
        findings = Findings()
        rules.check_display_name(endpoint.display_name, "endpoint.display_name", findings)
        rules.check_labels(endpoint.labels, "endpoint.labels", findings)
        findings.refuse()
        endpoint.name = f"{request.parent}/endpoints/{request.query.get('endpointId') or self._ids.new()}"
        endpoint.create_time.GetCurrentTime()
        self.store.add(endpoint)
        metadata = protos.new("CreateEndpointOperationMetadata")
        return self._operations.start(endpoint.name, metadata, endpoint)

    @route("GET", "{location}/endpoints/{id}")
    def get(self, request: Request) -> Message:
        return self.store.get(f"{request.parent}/endpoints/{request.id}")

    @route("GET", "{location}/endpoints")
    def list_all(self, request: Request) -> dict[str, Any]:
        return page(self.store.all(request.parent), "endpoints", request.query)

    @route("DELETE", "{location}/endpoints/{id}")
    def delete(self, request: Request) -> Message:
        name = f"{request.parent}/endpoints/{request.id}"
        if self.store.get(name).deployed_models:
            raise ApiError("FAILED_PRECONDITION", f"Endpoint {name} has deployed models; undeploy them first.")
        self.store.remove(name)
        return self._operations.start(name, protos.new("DeleteOperationMetadata"), empty_pb2.Empty())

    @route("POST", "{location}/endpoints/{id}:deployModel")
    def deploy(self, request: Request) -> Message:
        asked = protos.parse(request.body, protos.new("DeployModelRequest"))
        endpoint = self.store.get(f"{request.parent}/endpoints/{request.id}")
        model = self._models._find(f"{request.parent}/models/{asked.deployed_model.model.rpartition('/')[2]}")
        split, findings = dict(asked.traffic_split), Findings()
        findings.expect(not split or sum(split.values()) == 100, "traffic_split", f"{split} does not add up to 100.")
        dedicated = asked.deployed_model.dedicated_resources
        if asked.deployed_model.HasField("dedicated_resources"):
            field = "deployed_model.dedicated_resources.min_replica_count"
            findings.expect(dedicated.min_replica_count >= 1, field, "It must be 1 or more.")
        findings.refuse()
        deployed = endpoint.deployed_models.add()
        deployed.CopyFrom(asked.deployed_model)
        deployed.id, deployed.model_version_id = deployed.id or self._ids.new(), model.version_id
        deployed.model = model.name
        deployed.create_time.GetCurrentTime()
        endpoint.traffic_split.clear()
        for key, share in split.items():
            endpoint.traffic_split[deployed.id if key == "0" else key] = share
        response = protos.new("DeployModelResponse", deployed_model=deployed)
        return self._operations.start(endpoint.name, protos.new("DeployModelOperationMetadata"), response)

    @route("POST", "{location}/endpoints/{id}:undeployModel")
    def undeploy(self, request: Request) -> Message:
        asked = protos.parse(request.body, protos.new("UndeployModelRequest"))
        endpoint = self.store.get(f"{request.parent}/endpoints/{request.id}")
        left = [model for model in endpoint.deployed_models if model.id != asked.deployed_model_id]
        if len(left) == len(endpoint.deployed_models):
            raise ApiError("NOT_FOUND", f"DeployedModel {asked.deployed_model_id!r} is not at {endpoint.name}.")
        del endpoint.deployed_models[:]
        endpoint.deployed_models.extend(left)
        endpoint.traffic_split.pop(asked.deployed_model_id, None)
        metadata = protos.new("UndeployModelOperationMetadata")
        return self._operations.start(endpoint.name, metadata, protos.new("UndeployModelResponse"))
